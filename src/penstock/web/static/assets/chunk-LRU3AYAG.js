var a={zh:"zh-a8d7b02e54.json"};export{a};
