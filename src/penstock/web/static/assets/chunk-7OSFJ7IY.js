var a={zh:"zh-59ac040fd8.json"};export{a};
