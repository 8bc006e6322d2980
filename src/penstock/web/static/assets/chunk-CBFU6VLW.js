var a={zh:"zh-ac2928537b.json"};export{a};
