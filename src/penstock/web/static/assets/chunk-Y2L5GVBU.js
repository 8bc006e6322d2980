var b={zh:"zh-81442083b7.json"};export{b as a};
